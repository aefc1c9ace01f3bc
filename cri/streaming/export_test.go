// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

// Streams returns the sessions that have not ended.
func (s *Server) Streams() []Session { return s.listSessions() }
