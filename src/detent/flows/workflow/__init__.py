"""The workflow flow: YAML files whose steps are performed by code or by agents, one by one."""
