// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"github.com/seed81659283/nodeagent/cri/streaming"
	"github.com/seed81659283/nodeagent/nodeapi"
	"github.com/seed81659283/nodeagent/stats"
)

// Parts of other packages implement the interfaces of this package.
var (
	_ nodeapi.Streams = (*streaming.Server)(nil)
	_ nodeapi.Summary = (*stats.Collector)(nil)
)
