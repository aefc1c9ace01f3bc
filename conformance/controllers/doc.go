// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package controllers tests that the kube-scheduler and workload controllers of Kubernetes 1.37.1 work with the API server of package
// apiservertest, in the virtual time of testing/synctest and over a listener. It has tests only.
package controllers
