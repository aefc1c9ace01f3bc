// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package session connects the readers and writers of a [cri.Session] to the descriptors that a command or a container has.
// It starts no command and knows no container: funcs of its caller do.
//
// # Concurrency
//
// A call owns a goroutine for each stream, and for sizes. All have ended when it returns, but for one that waits in Read of
// Session.Stdin, and after an end of ctx one that waits for more than a second in Write.
package session
