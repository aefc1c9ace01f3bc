// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package trivial is run by the tests of hack/vm in a VM.
package trivial

// Answer is covered by a test.
func Answer() int { return 42 }

// Silence is not.
func Silence() {}
