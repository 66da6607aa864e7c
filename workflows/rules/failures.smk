onerror:
    plan.report_failures()
