// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/lifecycle"
)

func TestHandlePodsAndStatusesYieldsNothingBeforeSet(t *testing.T) {
	var h lifecycle.Handle
	for pod := range h.PodsAndStatuses {
		require.Fail(t, "a pod", "%v", pod)
	}
}
