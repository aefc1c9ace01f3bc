// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cripb converts the structs of package cri to and from the protobuf messages of the CRI (k8s.io/cri-api, runtime/v1). It
// makes no calls, and validates nothing except the names of signals.
//
// EncodeX returns the message for an X, and DecodeX the X for a message. Results share maps and slices of plain values with their
// arguments. A nil message decodes to the zero value.
//
// Two values have different forms. A time that is not set is zero nanoseconds in a message and the zero [time.Time] in a struct.
// The host's user namespace is mode NODE in a message and nil in a struct, because nil in a message means mode POD according to
// the protocol.
package cripb
