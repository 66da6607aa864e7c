rule graph:
    input:
        plan.inputs("graph"),
    output:
        "<results>/{experiment}/{variant}/graph.h5",
    log:
        "<results>/{experiment}/{variant}/logs/graph.log",
    params:
        project=plan.arguments,
        options=plan.params("graph"),
    shell:
        "pipeline-core graph --experiment {wildcards.experiment} --variant {wildcards.variant}"
        " {params.project} > {log} 2>&1"
