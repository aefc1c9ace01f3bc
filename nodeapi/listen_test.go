// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/nodeapi"
)

func TestListenAllClosesListenersAfterAnError(t *testing.T) {
	listeners, err := nodeapi.ListenAll(t.Context(), "127.0.0.1:0", "127.0.0.1:0")
	require.NoError(t, err)
	require.Len(t, listeners, 2)
	free, busy := listeners[0].Addr().String(), listeners[1].Addr().String()
	require.NoError(t, listeners[0].Close())
	defer listeners[1].Close()

	_, err = nodeapi.ListenAll(t.Context(), free, busy)
	require.ErrorContains(t, err, "address already in use")
	again, err := net.Listen("tcp", free)
	require.NoError(t, err, "ListenAll closes the first listener when the second fails")
	require.NoError(t, again.Close())
}
