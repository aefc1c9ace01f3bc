// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

// CallIsFinal reports whether a failed call certainly had no effect.
func CallIsFinal(e *CallError) bool { return e.isFinal() }
