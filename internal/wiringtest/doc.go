// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package wiringtest has tests of a rule for all packages: a missing option, required argument or call of Run is reported, never
// ignored. The tests omit each of them. The package has no code.
package wiringtest
