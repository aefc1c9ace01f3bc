// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan

// CrashLoopKey is for the scenarios, which write annotations as an earlier agent would have.
var CrashLoopKey = crashLoopKey
