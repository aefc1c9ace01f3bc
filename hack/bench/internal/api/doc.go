// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package api measures the API of node agents from outside, beside a kubelet and beside the floor: the same sessions by bare calls of the
// runtime and a client on its URL, and the bare file of a log. It shares no code with the agent but the clients of streamtest.
//
//	make bench-api KUBELET=.lab/bin/kubelet                          # as hack/bench/run.sh api does
//	make bench-api BENCHFLAGS='-n 5 -log 64 -settle 2s -rest 5s'     # a quick look
//
// # What a measurement is
//
// For every repeat the agent and the kubelet in turn, each with -n static pods and one more, which is on the host's network and is what
// requests are for. Everybody may do everything (AlwaysAllow), so that no API server is asked, and connections have TLS.
//
//   - resident: memory of the process after -settle, beside running pods that it finds at its start, without and with its server; and at
//     the end of the measurement.
//   - log: a log of -log MiB, which the harness writes into the container's file, through /containerLogs. MiB are those of the file.
//   - exec: `true` by SPDY, each on a connection of its own, from before the request until its exit status is there; some -execs
//     times one after the other, and as often with -parallel under way, in turn with the floor.
//   - port-forward: -log MiB by one connection of one session by SPDY, from a server in the harness.
//   - exec, output: -log MiB that a command in the container writes, by SPDY.
//   - floor with TLS: the same client at the runtime, through a proxy in the harness that has TLS and copies bytes. An agent has TLS, which
//     the runtime on the loopback has not.
//   - scrape: CPU time of each page, the mean of -scrapes requests one after the other. What pages share for a while is paid once.
//   - every page each 15 s: all CPU time, that at rest included, while all pages are asked for so for -monitored, as Prometheus and
//     metrics-server do. What an agent measures in the background counts here.
//   - idle execs: how much more memory is resident with -idle sessions of cat, each of which has answered once.
//
// The floor is taken beside each of them, right before the same step: both see the same load, and its figures are the medians of all.
// CPU time is that of the process of the agent alone, less what it takes at rest in that time; /proc counts it in hundredths of a second,
// so a small run says little. The processors of the machine are shared by runtime, harness and agent.
//
// The kubelet has no cgroups per QoS class, no iptables and no image garbage collection, which makes it cheaper than it is in a cluster.
//
// # What it leaves
//
// Nothing: pods and files go at the end, also after a failure or SIGINT.
package api
