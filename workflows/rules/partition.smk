rule partition:
    input:
        plan.inputs("partition"),
    output:
        "<results>/{experiment}/{variant}/partition.h5",
    log:
        "<results>/{experiment}/{variant}/logs/partition.log",
    params:
        project=plan.arguments,
        options=plan.params("partition"),
    shell:
        "pipeline-core partition --experiment {wildcards.experiment} --variant {wildcards.variant}"
        " {params.project} > {log} 2>&1"
