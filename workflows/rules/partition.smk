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
        "pipeline-core partition --experiment {wildcards.experiment:q} --variant {wildcards.variant:q}"
        " {params.project} > {log:q} 2>&1"
