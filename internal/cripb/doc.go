// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package cripb translates between the structs of package cri and the protobuf messages of the CRI
// (k8s.io/cri-api, runtime/v1). It is pure: it calls nobody and checks nothing but the names of signals.
//
// EncodeX makes the message of an X, DecodeX reads it. Both share maps and slices of plain values with what they
// were given. A nil message decodes to the zero value.
//
// Two meanings differ between the sides and are translated. A time that is not set is zero nanoseconds in a
// message and the zero [time.Time] in a struct. No user namespace is nil in a struct and mode NODE in a message,
// since nil in a message means "mode POD" to the letter of the protocol.
package cripb
