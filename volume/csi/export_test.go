// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

// CallIsFinal exports CallError.isFinal: the driver has certainly rejected the call without an effect.
func CallIsFinal(e *CallError) bool { return e.isFinal() }
