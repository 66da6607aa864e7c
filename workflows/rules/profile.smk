rule profile:
    input:
        plan.inputs("profile"),
    output:
        "<results>/{experiment}/{variant}/profile.json",
    log:
        "<results>/{experiment}/{variant}/logs/profile.log",
    threads: plan.threads("profile")
    resources:
        device="auto",
    params:
        project=plan.arguments,
        options=plan.params("profile"),
    shell:
        "pipeline-core profile --experiment {wildcards.experiment:q} --variant {wildcards.variant:q}"
        " --device {resources.device:q} {params.project} > {log:q} 2>&1"
