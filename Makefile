# What one can do here. `make` prints it.
.DEFAULT_GOAL := help
.PHONY: help dev test test-db fuzz bench-small allocations generate lint torture ci image postgres-image notices

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

dev: ## run Postlane here, with a database, a console and sample events
	./scripts/dev

test: ## run every test; one package: ./scripts/test ./delivery
	./scripts/test

test-db: ## keep the tests' PostgreSQL up and print its URL, until Ctrl-C
	go run ./internal/pgtest/with

fuzz: ## run every fuzz target for 10 s; longer: ./scripts/fuzz -time 5m
	./scripts/fuzz

bench-small: ## run a small version of every benchmark, for gross regressions
	./scripts/bench-small

allocations: ## count the allocations of the hot paths, and compare
	./scripts/allocations

generate: ## generate internal/dbgen from db/
	./scripts/generate

lint: ## gofmt, go vet, golangci-lint, govulncheck
	./scripts/lint

torture: ## run it under faults for five minutes and judge what arrived; see docs/torture.md
	./scripts/torture

image: ## build an image of the server for Docker
	./scripts/image

postgres-image: ## build a PostgreSQL image for Docker without a registry (root)
	./scripts/postgres-image

notices: ## write the licenses of what is compiled in
	./scripts/notices

ci: ## all that CI runs, as it runs it (root: it installs packages)
	./.ci/run
