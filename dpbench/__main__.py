from dpbench.cli.main import main

main()
