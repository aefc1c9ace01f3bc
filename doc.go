// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeagent is the map of a library of node-agent building blocks: what the Kubernetes kubelet does on a
// node, as packages that are imported one at a time. This package holds no code.
//
// # A whole node
//
//   - [github.com/seed81659283/nodeagent/agent]: the packages below, connected, with a kubelet's configuration and defaults
//   - [github.com/seed81659283/nodeagent/agent/kubeletconfig]: reads a kubelet's configuration file, and turns it into the options of
//     engines
//
// # Talk to a container runtime
//
//   - [github.com/seed81659283/nodeagent/cri]: sandboxes, containers and images as plain structs, and the
//     interfaces of a runtime
//   - [github.com/seed81659283/nodeagent/cri/remote]: the gRPC client of containerd and CRI-O
//   - [github.com/seed81659283/nodeagent/cri/process]: the embedded runtime: a container is a process group of the
//     host, without a daemon, without images and without isolation
//   - [github.com/seed81659283/nodeagent/cri/criserver]: serves any runtime on a socket, so that crictl and the
//     kubelet can talk to it
//   - [github.com/seed81659283/nodeagent/cri/logs]: parses, reads, follows and rotates the log files of containers
//   - [github.com/seed81659283/nodeagent/cri/critest]: a runtime in memory with scripted containers and faults, and
//     the conformance suite that every runtime passes
//     for them
//
// # Run pods
//
//   - [github.com/seed81659283/nodeagent/lifecycle]: brings pods to where their specs want them, each on its own
//   - [github.com/seed81659283/nodeagent/lifecycle/plan]: decides what a pod needs next
//   - [github.com/seed81659283/nodeagent/lifecycle/podstatus]: phase, conditions and container states of a pod
//   - [github.com/seed81659283/nodeagent/lifecycle/podapi]: defaults and validates a pod and judges its updates, as an API
//     server does
//   - [github.com/seed81659283/nodeagent/lifecycle/podspec]: turns a pod into the configs of its sandbox and
//     containers
//   - [github.com/seed81659283/nodeagent/lifecycle/podevents]: the records of actions on pods and of their errors, in the kubelet's words
//   - [github.com/seed81659283/nodeagent/lifecycle/objects]: config maps, secrets and services, in memory or in a
//     directory
//   - [github.com/seed81659283/nodeagent/apiserver]: pods, objects, tokens, statuses, events and mirror pods of an API server
//   - [github.com/seed81659283/nodeagent/apiserver/apiservertest]: an API server in memory, with faults
//   - [github.com/seed81659283/nodeagent/lifecycle/admission]: whether a pod may run on a node: room, affinity, host ports, taints
//   - [github.com/seed81659283/nodeagent/lifecycle/podstore]: keeps the wanted pods on disk, for a start without
//     network and API server
//   - [github.com/seed81659283/nodeagent/lifecycle/source]: reads pods from a directory or an HTTP endpoint
//   - [github.com/seed81659283/nodeagent/lifecycle/userns]: ranges of user IDs for pods with user namespaces
//
// # Give pods their volumes
//
//   - [github.com/seed81659283/nodeagent/volume]: sets up, updates and tears down the volumes of pods, also after an agent
//     was killed
//   - [github.com/seed81659283/nodeagent/volume/csi]: makes volumes by CSI drivers, and registers those
//   - [github.com/seed81659283/nodeagent/volume/intree]: emptyDir, hostPath, configMap, secret, downwardAPI, projected, local
//     and NFS volumes
//   - [github.com/seed81659283/nodeagent/volume/volumetest]: a plugin in memory, faults, and the suite that every plugin
//     passes
//   - [github.com/seed81659283/nodeagent/volume/atomicwriter]: writes a set of files so that a reader sees the old set or the
//     new one
//   - [github.com/seed81659283/nodeagent/volume/subpath]: binds a part of a volume that no link in it leads out of
//   - [github.com/seed81659283/nodeagent/volume/fsgroup]: gives the files of a volume to the group of a pod
//
// # Make images present, and remove them
//
//   - [github.com/seed81659283/nodeagent/images]: makes images present: pull policy, back-off, limits, and who may use
//     what was pulled with a secret
//   - [github.com/seed81659283/nodeagent/gc]: removes images that nothing uses, and what pods have left behind
//   - [github.com/seed81659283/nodeagent/internal/gctest]: images on a disk in memory, and the suite that every collector passes
//   - [github.com/seed81659283/nodeagent/images/credential]: pull secrets, docker configurations and credential
//     provider plugins
//
// # Connect pods
//
//   - [github.com/seed81659283/nodeagent/cni]: sets up and tears down the network of pod sandboxes with CNI plugins
//   - [github.com/seed81659283/nodeagent/cni/netns]: makes network namespaces that last
//
// # Hold pods to their resources
//
//   - [github.com/seed81659283/nodeagent/qos]: QoS class, OOM score adjustment, effective requests and limits, memory
//     protection and swap of a pod
//   - [github.com/seed81659283/nodeagent/cgroups]: what a cgroup may use, its names, and what its files say
//   - [github.com/seed81659283/nodeagent/cgroups/driver]: makes, limits, reads and removes the cgroups of this host,
//     of v1 and v2, by files or through systemd
//   - [github.com/seed81659283/nodeagent/cgroups/podtree]: kubepods, the cgroups of classes and pods, and what the node
//     keeps for itself
//   - [github.com/seed81659283/nodeagent/cgroups/cgroupstest]: a tree in memory that runs out of memory as a real one
//     does, faults, and the conformance suite that every driver passes
//
// # Notice what happened
//
//   - [github.com/seed81659283/nodeagent/pleg]: compares what the runtime lists with what it listed before, and
//     tells which pods changed
//   - [github.com/seed81659283/nodeagent/nodestatus]: makes the Node object, and the patch and the events that report it
//   - [github.com/seed81659283/nodeagent/nodestatus/machine]: reads IDs, operating system, CPUs and memory of a machine
//   - [github.com/seed81659283/nodeagent/cri/streaming]: exec, attach and port-forward: proxied, translated, or spoken here
//   - [github.com/seed81659283/nodeagent/apiserver/cert]: credentials of a node: kubeconfigs, client and serving certificates
//   - [github.com/seed81659283/nodeagent/nodestatus/heartbeat]: registers the node, keeps its status true and its lease alive
//   - [github.com/seed81659283/nodeagent/shutdown]: stops pods by priority before the machine goes down
//   - [github.com/seed81659283/nodeagent/stats]: measures the node and its pods, and what pods are evicted by
//   - [github.com/seed81659283/nodeagent/nodeapi]: the HTTP API of the node that kubectl and Prometheus talk to
//   - [github.com/seed81659283/nodeagent/nodeapi/auth]: who may send what to that API
//   - [github.com/seed81659283/nodeagent/nodeapi/prom/usage]: the pages of metrics about what pods use
//   - [github.com/seed81659283/nodeagent/nodeapi/podsapi]: serves the pods of the node to its other programs, over gRPC
//   - [github.com/seed81659283/nodeagent/probe]: runs liveness, readiness and startup probes, counts thresholds, and
//     remembers results across restarts of the agent; TCP and exec probers
//   - [github.com/seed81659283/nodeagent/probe/httpprobe]: the prober for HTTP
//   - [github.com/seed81659283/nodeagent/probe/grpcprobe]: the prober for gRPC health checks
//   - [github.com/seed81659283/nodeagent/probe/podprobe]: the probes of a pod, and what their results mean for it
//
// # Keep the node alive
//
//   - [github.com/seed81659283/nodeagent/eviction]: decides which pods leave a node that is short of memory, disk, inodes or
//     process IDs, and has them evicted
//   - [github.com/seed81659283/nodeagent/eviction/podevict]: candidates and messages of evictions, admission under pressure,
//     preemption
//   - [github.com/seed81659283/nodeagent/eviction/evictiontest]: a node in memory and in virtual time, and the suite that every
//     observer passes
//
// # Where to start reading
//
// Package agent is the whole node, and examples/agent its program. The command examples/minimal wires packages by hand into an agent that runs
// static pods, on one screen. The commands examples/pleg, prober, qos, logs, runtime, evictor, imagegc, virtualnode, metrics and cni show one idea
// each. The documentation of the packages has runnable examples:
//
//   - an agent with a ranking, a source or a runtime of your own, in an edge controller, in virtual time, several in one process:
//     [github.com/seed81659283/nodeagent/agent]
//   - pods built in code: [github.com/seed81659283/nodeagent/lifecycle], example of Reconciler
//   - a node in memory, for a test: the same package, example NodeInMemory
//   - an agent with two runtimes: the same package, example TwoRuntimes
//   - a pod by bare calls of a runtime: [github.com/seed81659283/nodeagent/cri], example of Runtime
//   - a runtime without a daemon: [github.com/seed81659283/nodeagent/cri/process], example of Open
//
// # Serve metrics
//
//   - [github.com/seed81659283/nodeagent/nodeapi/prom]: metrics with the kubelet's names, from the hooks of the engines, and
//     their pages
//
// Planned, not here yet: device, nodetest.
//
// Desired state is k8s.io/api/core/v1; observed state is package cri; packages share nothing else. ARCHITECTURE.md
// in the repository shows who may import whom.
package nodeagent
