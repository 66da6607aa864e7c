rule evaluate:
    input:
        plan.inputs("evaluate"),
    output:
        "<results>/{experiment}/{variant}/metrics.json",
        "<results>/{experiment}/{variant}/predictions.h5",
    log:
        "<results>/{experiment}/{variant}/logs/evaluate.log",
    threads: plan.threads("evaluate")
    resources:
        device="auto",
    params:
        project=plan.arguments,
        options=plan.params("evaluate"),
    shell:
        "pipeline-core evaluate --experiment {wildcards.experiment:q} --variant {wildcards.variant:q}"
        " --device {resources.device:q} {params.project} > {log:q} 2>&1"
