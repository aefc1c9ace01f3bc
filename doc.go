// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeagent is the map of a library of node-agent building blocks: what the Kubernetes kubelet does on a node, as packages that are
// imported one at a time. This package holds no code.
//
// # A whole node
//
//   - [github.com/seed81659283/nodeagent/agent]: connects the packages below to a node, with a kubelet's configuration and defaults
//   - [github.com/seed81659283/nodeagent/agent/kubeletconfig]: reads and validates a kubelet's configuration file, and converts it to
//     the options of engines
//   - [github.com/seed81659283/nodeagent/agent/kubeletflags]: parses the kubelet's command line, and applies its flags to a configuration
//   - [github.com/seed81659283/nodeagent/nodetest]: is a node in memory and in virtual time, whose pods use CPU, memory and disks
//   - [github.com/seed81659283/nodeagent/nodetest/machine]: models the CPUs, memory, disks and processes of a machine; pure
//
// # Run pods
//
//   - [github.com/seed81659283/nodeagent/lifecycle]: runs the pods that sources list: one worker per pod, from admission to removal
//   - [github.com/seed81659283/nodeagent/lifecycle/plan]: decides what a pod needs next: starts, kills, restarts, back-off, termination;
//     pure
//   - [github.com/seed81659283/nodeagent/lifecycle/podstatus]: computes phase, conditions and container states of a pod; pure
//   - [github.com/seed81659283/nodeagent/lifecycle/podapi]: sets defaults of pods, validates them and their updates, as an API server
//     does
//   - [github.com/seed81659283/nodeagent/lifecycle/podspec]: converts a pod to the CRI configurations of its sandbox and containers
//   - [github.com/seed81659283/nodeagent/lifecycle/admission]: decides whether a pod may run on a node: resources, affinity, host ports,
//     taints
//   - [github.com/seed81659283/nodeagent/lifecycle/podevents]: describes the events, starts and syncs of pods with the kubelet's reasons
//   - [github.com/seed81659283/nodeagent/lifecycle/source]: reads pods from a directory, a URL or a channel
//   - [github.com/seed81659283/nodeagent/lifecycle/podstore]: keeps the last pods of all sources on disk, for a start without API server
//   - [github.com/seed81659283/nodeagent/lifecycle/objects]: holds config maps, secrets, services and claims, in memory or read from a
//     directory
//   - [github.com/seed81659283/nodeagent/lifecycle/userns]: allocates ranges of user IDs to pods with user namespaces
//
// # Talk to a container runtime
//
//   - [github.com/seed81659283/nodeagent/cri]: defines the types and interfaces of a container runtime
//   - [github.com/seed81659283/nodeagent/cri/remote]: calls containerd and CRI-O over gRPC
//   - [github.com/seed81659283/nodeagent/cri/process]: runs containers as process groups of the host, inside your program
//   - [github.com/seed81659283/nodeagent/cri/criserver]: serves any runtime over gRPC, for crictl and the kubelet
//   - [github.com/seed81659283/nodeagent/cri/streaming]: serves exec, attach and port-forward: proxied to the runtime, translated, or
//     spoken itself
//   - [github.com/seed81659283/nodeagent/cri/logs]: parses, reads, follows and rotates the log files of containers
//   - [github.com/seed81659283/nodeagent/cri/critest]: is a runtime in memory with scripted containers and faults, and the suite that
//     every runtime passes
//
// # Detect changes and failures
//
//   - [github.com/seed81659283/nodeagent/pleg]: detects changes of containers by events and relists, and reports hung pods
//   - [github.com/seed81659283/nodeagent/probe]: runs liveness, readiness and startup probes; TCP and exec probers
//   - [github.com/seed81659283/nodeagent/probe/httpprobe]: probes by HTTP
//   - [github.com/seed81659283/nodeagent/probe/grpcprobe]: probes by gRPC health checks
//   - [github.com/seed81659283/nodeagent/probe/podprobe]: runs the probes of pods and interprets their results
//
// # Limit resources
//
//   - [github.com/seed81659283/nodeagent/qos]: computes QoS class, OOM score adjustment, effective requests and limits, memory QoS and
//     swap of a pod
//   - [github.com/seed81659283/nodeagent/cgroups]: describes limits, names and files of cgroups; pure
//   - [github.com/seed81659283/nodeagent/cgroups/driver]: creates, limits, reads and removes cgroups: v1, v2, systemd
//   - [github.com/seed81659283/nodeagent/cgroups/podtree]: keeps kubepods, the cgroups of QoS classes and pods, and node allocatable
//   - [github.com/seed81659283/nodeagent/cgroups/topology]: reads CPUs, cores, caches, sockets and NUMA nodes of a machine
//   - [github.com/seed81659283/nodeagent/cgroups/cpus]: decides which containers have exclusive CPUs, as the static policy of the CPU
//     manager does, and writes them
//   - [github.com/seed81659283/nodeagent/cgroups/numa]: decides from which NUMA nodes containers have their memory, as the static policy of the memory
//     manager does, and records it
//   - [github.com/seed81659283/nodeagent/cgroups/cgroupstest]: is a cgroup tree in memory with an OOM killer and faults, and the suite
//     that every driver passes
//   - [github.com/seed81659283/nodeagent/device]: decides which devices of plugins a container gets, on which NUMA nodes, and keeps who
//     holds them
//   - [github.com/seed81659283/nodeagent/device/plugin]: registers device plugins and calls them
//   - [github.com/seed81659283/nodeagent/device/placement]: gives the containers of pods their devices, exclusive CPUs and memory
//     on NUMA nodes together
//   - [github.com/seed81659283/nodeagent/device/poddevice]: gives the containers of pods their devices
//   - [github.com/seed81659283/nodeagent/device/podresources]: tells local programs over gRPC which container has which devices
//   - [github.com/seed81659283/nodeagent/device/devicetest]: is a device plugin in memory with faults, and the suite that every plugin passes
//   - [github.com/seed81659283/nodeagent/eviction]: decides which pods leave a node that is short of memory, disk, inodes or PIDs, and
//     evicts them
//   - [github.com/seed81659283/nodeagent/eviction/podevict]: connects eviction to pods and measurements: candidates, messages,
//     preemption, the observer and actor of a node
//   - [github.com/seed81659283/nodeagent/eviction/evictiontest]: is a node in memory and in virtual time, and the suite that every
//     observer passes
//
// # Keep images and disks
//
//   - [github.com/seed81659283/nodeagent/images]: pulls images: policy, back-off, limits, and which pod may use an image that a secret
//     pulled
//   - [github.com/seed81659283/nodeagent/images/credential]: finds credentials: pull secrets, docker configurations, credential provider
//     plugins
//   - [github.com/seed81659283/nodeagent/gc]: removes unused images, and containers, sandboxes, logs and directories without a pod
//
// # Set up volumes
//
//   - [github.com/seed81659283/nodeagent/volume]: sets up, refreshes and tears down the volumes of pods, also after a kill of the agent
//   - [github.com/seed81659283/nodeagent/volume/intree]: implements emptyDir, hostPath, configMap, secret, downwardAPI, projected, local
//     and NFS volumes
//   - [github.com/seed81659283/nodeagent/volume/csi]: implements volumes of CSI drivers, and registers the drivers
//   - [github.com/seed81659283/nodeagent/volume/atomicwriter]: writes a set of files so that a reader sees the old set or the new set
//   - [github.com/seed81659283/nodeagent/volume/subpath]: binds a part of a volume without following links out of it
//   - [github.com/seed81659283/nodeagent/volume/fsgroup]: changes the group of the files of a volume
//   - [github.com/seed81659283/nodeagent/volume/volumetest]: is a plugin in memory with faults, and the suite that every plugin passes
//
// # Connect pods
//
//   - [github.com/seed81659283/nodeagent/cni]: sets up and tears down the network of pod sandboxes with CNI plugins
//   - [github.com/seed81659283/nodeagent/cni/netns]: creates persistent network namespaces
//
// # Report to the API server
//
//   - [github.com/seed81659283/nodeagent/apiserver]: connects a node to its API server: pods, referenced objects, tokens, statuses,
//     mirror pods, events
//   - [github.com/seed81659283/nodeagent/apiserver/cert]: manages the credentials of a node: kubeconfigs, client and serving
//     certificates
//   - [github.com/seed81659283/nodeagent/apiserver/apiservertest]: is an API server in memory, with faults
//   - [github.com/seed81659283/nodeagent/nodestatus]: builds the Node object, and the patch and events that report it
//   - [github.com/seed81659283/nodeagent/nodestatus/heartbeat]: registers the Node, reports its status and renews its Lease
//   - [github.com/seed81659283/nodeagent/nodestatus/machine]: reads IDs, operating system, CPUs, memory and huge pages of a machine
//   - [github.com/seed81659283/nodeagent/stats]: measures what node, pods, containers and volumes use
//   - [github.com/seed81659283/nodeagent/shutdown]: stops pods by priority before the machine goes down
//
// # Serve the node's API
//
//   - [github.com/seed81659283/nodeagent/nodeapi]: serves the kubelet's HTTP API: pods, logs, sessions, statistics, health, log files of
//     the machine
//   - [github.com/seed81659283/nodeagent/nodeapi/auth]: authenticates and authorizes requests to that API
//   - [github.com/seed81659283/nodeagent/nodeapi/podsapi]: serves the pods of the node to local programs over gRPC
//   - [github.com/seed81659283/nodeagent/nodeapi/prom]: exports metrics with the kubelet's names from the hooks of the engines
//   - [github.com/seed81659283/nodeagent/nodeapi/prom/usage]: exports the usage of pods and containers as /metrics/resource and
//     /metrics/cadvisor
//
// # Where to start reading
//
// Package agent is a whole node; its Examples are agents with a ranking, a source or a runtime of your own, in an edge controller, in virtual
// time, and several in one process. The command examples/minimal wires packages by hand on one screen; the other commands of examples show one
// engine each. Pods built in code, a node in memory for a test, and an agent with two runtimes are Examples of package lifecycle.
//
// Desired state is k8s.io/api/core/v1, observed state is package cri; packages share nothing else. ARCHITECTURE.md in the repository shows how they
// are connected and where new code goes.
package nodeagent
