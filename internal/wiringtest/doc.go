// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package wiringtest has the tests of a rule of all packages: wiring that is left out is never silent. Its tests take each option,
// each required argument and each Run away. It has no code of its own.
package wiringtest
