// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package changeover predicts the effect on each pod if an agent takes the place of the kubelet that runs on a node. It changes nothing: no file, no
// socket, no cgroup and no container.
//
//	node, err := changeover.Read(ctx, &documents, settingsErr, changeover.Options{})
//	report := changeover.Decide(node)
//	fmt.Print(report.Text())
//
// # Model
//
// [Read] collects the configuration, the files of the kubelet, the pods of the API server and of static manifests, and the list of containers. [Decide]
// is pure. It calls the functions with which the agent itself decides: plan.Decide, the checks of pods, volumes and sysctls, and the owner of containers.
//
// # Concurrency
//
// The functions share no state.
//
// # Errors
//
// Read returns an error if the container runtime cannot be read. Other sources that cannot be read are in [Node.Unread], and the pods that only these
// sources describe have the outcome [Unknown].
//
// Test kit: none is needed; Options.Runtime is a list of containers.
package changeover
