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
        "pipeline-core profile --experiment {wildcards.experiment} --variant {wildcards.variant}"
        " --device {resources.device} {params.project} > {log} 2>&1"
