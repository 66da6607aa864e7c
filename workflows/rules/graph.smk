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
        "pipeline-core graph --experiment {wildcards.experiment:q} --variant {wildcards.variant:q}"
        " {params.project} > {log:q} 2>&1"
