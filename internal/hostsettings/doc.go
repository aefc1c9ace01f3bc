// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package hostsettings checks the machine at the start of an agent, and sets kernel parameters and limits of the process, as a kubelet does. It
// reads no configuration file, and repeats nothing while the agent runs.
//
//	err := hostsettings.Settings{FailSwapOn: true, OOMScoreAdj: new(int32(-999))}.Apply("/proc", logger)
//
// # Errors
//
// An error begins with the name of the field of the KubeletConfiguration that refuses the machine, and has the value that was found. Limits and a
// cgroup of the process that cannot be set are logged, as in the kubelet.
//
// Test kit: none is needed; the first argument of Apply may be a directory of files.
package hostsettings
