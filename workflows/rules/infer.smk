rule infer:
    input:
        plan.inputs("infer"),
    output:
        "<results>/{experiment}/{variant}/inference.h5",
    log:
        "<results>/{experiment}/{variant}/logs/infer.log",
    threads: plan.threads("infer")
    resources:
        launcher="",
        ranks=plan.ranks("infer"),
        device="auto",
    params:
        project=plan.arguments,
        options=plan.params("infer"),
    shell:
        "{resources.launcher} pipeline-core infer --experiment {wildcards.experiment:q} --variant {wildcards.variant:q}"
        " --ranks {resources.ranks} --device {resources.device:q} {params.project} > {log:q} 2>&1"
