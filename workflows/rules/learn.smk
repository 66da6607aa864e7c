rule pick:
    input:
        plan.pick_inputs,
    output:
        "<results>/{experiment}/{variant}/picks.extxyz",
        "<results>/{experiment}/{variant}/picks.json",
    log:
        "<results>/{experiment}/{variant}/logs/pick.log",
    resources:
        device="auto",
    params:
        project=plan.arguments,
        options=plan.pick_params,
    shell:
        "pipeline-core pick --experiment {wildcards.experiment:q} --variant {wildcards.variant:q}"
        " --device {resources.device:q} {params.project} > {log:q} 2>&1"


rule label:
    input:
        plan.label_inputs,
    output:
        # Kept if it exists already and belongs to the pick.
        update("<results>/{experiment}/{variant}/labels/{number}.extxyz"),
    log:
        "<results>/{experiment}/{variant}/logs/label_{number}.log",
    wildcard_constraints:
        number=r"\d+",
    threads: plan.label_threads
    params:
        project=plan.arguments,
        options=plan.label_params,
    shell:
        "pipeline-core label --experiment {wildcards.experiment:q} --variant {wildcards.variant:q}"
        " --number {wildcards.number} --threads {threads} {params.project} > {log:q} 2>&1"


rule grow:
    input:
        plan.raw_files,
    output:
        "<results>/{experiment}/{variant}/data.h5",
    log:
        "<results>/{experiment}/{variant}/logs/data.log",
    params:
        project=plan.arguments,
        options=plan.dataset,
    shell:
        "pipeline-core data --experiment {wildcards.experiment:q} --variant {wildcards.variant:q}"
        " {params.project} > {log:q} 2>&1"
