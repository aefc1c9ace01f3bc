// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package api measures the HTTP API of node agents from outside, beside a kubelet and the floor. The floor is the same session with the
// runtime itself: a bare CRI call and a client on its URL, or the plain log file. It shares no code with the agent except streamtest.
//
//	make bench-api KUBELET=.lab/bin/kubelet                          # as hack/bench/run.sh api does
//	make bench-api BENCHFLAGS='-n 5 -log 64 -settle 2s -rest 5s'     # a short run
//
// # Measurements
//
// Each repeat measures the agent and then the kubelet. Both run -n static pods, and one more on the host's network, which receives the
// requests. All requests are authorized (AlwaysAllow), so that the agent calls no API server. Connections use TLS.
//
//   - resident: memory of the process after -settle, with running pods that it finds at its start, without and with its server; and at
//     the end of the measurement.
//   - log: /containerLogs of a log of -log MiB, which the harness writes into the container's file. MiB are those of the file.
//   - exec: the command true by SPDY, each on its own connection, from before the request until the exit status arrives; -execs
//     times sequentially, and -execs times with -parallel concurrent sessions, alternating with the floor.
//   - port-forward: -log MiB by one connection of one session by SPDY, from a server in the harness.
//   - exec, output: -log MiB that a command in the container writes, by SPDY.
//   - floor with TLS: the same client at the runtime, through a proxy in the harness that terminates TLS and copies bytes. An agent
//     serves TLS; the runtime on the loopback does not.
//   - scrape: CPU time of a request for each page, the mean of -scrapes sequential requests. Data that pages cache is measured once.
//   - every page each 15 s: all CPU time, including that at rest, while all pages are requested every 15 s for -monitored, as by
//     Prometheus and metrics-server. It includes measurements of the agent in the background.
//   - idle execs: the additional resident memory of -idle sessions of cat, each of which has responded once.
//
// The floor is measured right before each step, so that both see the same load; its figures are the medians of all measurements.
// CPU time is that of the agent's process, minus its CPU time at rest in that period. /proc counts it in hundredths of a second, which
// is too coarse for a small run. Runtime, harness and agent share the processors of the machine.
//
// The kubelet has no cgroups per QoS class, no iptables and no image garbage collection, which makes it cheaper than in a cluster.
//
// # Clean-up
//
// Pods and files are removed at the end, also after a failure or SIGINT.
package api
