// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"github.com/seed81659283/nodeagent/nodeapi"
	"github.com/seed81659283/nodeagent/nodeapi/nodelogs"
	"github.com/seed81659283/nodeagent/nodeapi/stream"
	"github.com/seed81659283/nodeagent/nodestatus/summary"
)

// The parts of other packages fit as they are.
var (
	_ nodeapi.Streams = (*stream.Server)(nil)
	_ nodeapi.Summary = (*summary.Collector)(nil)
	_                 = nodeapi.Options{NodeLogs: (*nodelogs.Handler)(nil)}
)
