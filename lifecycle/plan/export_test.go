// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan

// CrashLoopKey lets the scenarios write annotations as a previous agent would have.
var CrashLoopKey = crashLoopKey
