rule infer:
    input:
        plan.inputs("infer"),
    output:
        "<results>/{experiment}/{variant}/inference.h5",
    log:
        "<results>/{experiment}/{variant}/logs/infer.log",
    threads: plan.threads("infer")
    resources:
        device="auto",
    params:
        project=plan.arguments,
        options=plan.params("infer"),
    shell:
        "pipeline-core infer --experiment {wildcards.experiment:q} --variant {wildcards.variant:q}"
        " --device {resources.device:q} {params.project} > {log:q} 2>&1"
