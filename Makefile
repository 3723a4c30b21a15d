# Everything needs only Go and make; interop fetches Java and Apache Kafka's tools through .ci/java, other clients through .ci/clients.
GO     ?= go
ARGS   ?=
FUZZTIME ?= 20s

.PHONY: run build test soak mutants torture race interop interop-short kgo-suite fuzz bench bench-compare bench-rivals generate lint cover

run: build ## build and run the broker: data in ./data, port 9092
	./bin/kaas serve $(ARGS)

build:
	$(GO) build -o bin/kaas ./cmd/kaas

test:
	$(GO) test ./...

# Thousands of random runs: the engine and its state store with the power cut at every operation, the coordinators of groups and transactions,
# causal nodes, SEEDS each, and a broker on a failing disk, SEEDS_BROKER; from seed FIRST on.
SEEDS        ?= 2000
SEEDS_BROKER ?= 100
FIRST        ?= 0
soak:
	$(GO) test ./engine -run 'TestModel$$' -count=1 -timeout 0 -seeds $(SEEDS) -seed $(FIRST) -v
	$(GO) test ./engine/state -run TestPowerCut -count=1 -timeout 0 -seeds $(SEEDS) -first $(FIRST)
	$(GO) test ./server/group -run 'Model$$' -count=1 -timeout 0 -seeds $(SEEDS) -first $(FIRST)
	$(GO) test ./server/txn -run TestHistories -count=1 -timeout 0 -seeds $(SEEDS) -first $(FIRST)
	$(GO) test ./server -run TestTransactionsOnAFailingDisk -count=1 -timeout 0 -faulty-seeds $(SEEDS_BROKER) -faulty-first $(FIRST)
	$(GO) test ./server/causal/simulate -count=1 -timeout 0 -seeds $(SEEDS) -first $(FIRST) -v

# The gate, the stamp and the rest of the causal node, each broken in one place: the simulator must notice. About ten minutes.
mutants:
	$(GO) test ./server/causal/simulate -run TestMutants -count=1 -timeout 0 -mutants -v

# A broker process maltreated under load, of plain producers and of transactions: kill -9, stops, full and failing disks, power cuts (server/torture). SEED
# repeats a plan; ROUNDS of each.
ROUNDS ?= 60
SEED   ?= 0
torture:
	$(GO) test -tags torture -count=1 -timeout 0 -v ./server/torture -rounds $(ROUNDS) -seed $(SEED)

race:
	$(GO) test -race ./...

# Clients of others against the broker: franz-go, Apache's own tools (Java), kcat, confluent-kafka (Python, Go), kafkajs (Node);
# what they read is compared with Apache Kafka's answers; thirty times kill -9. The short form leaves Apache out.
interop:
	.ci/java
	.ci/clients
	$(GO) test -tags interop -count=1 -timeout 30m -v ./server/interop -kills 30 -apache

interop-short:
	.ci/java
	.ci/clients
	$(GO) test -tags interop -count=1 -timeout 15m -v ./server/interop -short -kills 3

# The tests that come with the franz-go client against this broker; KGO_RUN and KGO_SKIP choose them by name.
kgo-suite: build
	GO=$(GO) .ci/kgo-suite

# Every fuzz target in turn, FUZZTIME each.
fuzz:
	.ci/fuzz $(FUZZTIME)

bench: build
	./bin/kaas bench $(ARGS)

# Everything that bench compare and bench engine measure, against the last stored run: fails when a figure is more than 10 % worse beyond the
# spread of both runs. Missed bars are told and do not count here. Wants a quiet machine, about 15 minutes.
bench-compare: build
	rm -f bin/bench-new.jsonl
	-./bin/kaas bench compare --results bin/bench-new.jsonl $(ARGS)
	./bin/kaas bench engine --results bin/bench-new.jsonl
	./bin/kaas bench diff bench/results/compare.jsonl bin/bench-new.jsonl

# kaas beside Apache Kafka and kfake with real clients; the results are stored, and BENCHMARKS.md and its charts renewed. Wants Java, Maven and a C
# compiler, a quiet machine, and the better part of an hour.
ROUNDS_RIVALS ?= 3
bench-rivals: build
	.ci/java
	-./bin/kaas bench rivals --rounds $(ROUNDS_RIVALS) --results bench/results/rivals.jsonl $(ARGS)
	./bin/kaas bench report

generate:
	$(GO) generate ./...

lint:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "gofmt wants changes in:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet -tags interop,torture ./...
	$(GO) tool staticcheck -tags interop,torture ./...

cover:
	$(GO) test -coverprofile=coverage.out -coverpkg=./... ./...
	$(GO) tool cover -func=coverage.out | tail -1
