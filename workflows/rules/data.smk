rule data:
    input:
        plan.raw_files,
    output:
        "<results>/datasets/{dataset}/data.h5",
    log:
        "<results>/datasets/{dataset}/logs/data.log",
    params:
        project=plan.arguments,
        options=plan.dataset,
    shell:
        "pipeline-core data --dataset {wildcards.dataset:q} {params.project} > {log:q} 2>&1"
