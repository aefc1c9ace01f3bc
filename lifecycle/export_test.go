// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

// CrashLoopKey is for the scenarios, which write annotations as an earlier agent would have.
var CrashLoopKey = crashLoopKey

// EndUnseen gives an end to the containers of a pod that has ended.
var EndUnseen = endUnseen
