// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

// CallIsFinal reports whether a call has failed for good.
func CallIsFinal(e *CallError) bool { return e.isFinal() }
