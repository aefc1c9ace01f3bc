// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package probe_test

// raceEnabled reports whether the race detector is enabled.
const raceEnabled = true
