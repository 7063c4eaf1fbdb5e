dpolicy prove policy.yaml --unit user --any 3 --of team
