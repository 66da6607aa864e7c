for paper in plan.papers:

    rule:
        name:
            f"paper_{paper}"
        input:
            plan.paper(paper),
        localrule: True


rule papers:
    input:
        plan.all_papers,
    localrule: True
