// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/images/credential"
)

func TestNodeProvidersLooksForPluginsOnlyIfConfigured(t *testing.T) {
	providers, err := credential.NodeProviders(credential.Files{"/x"}, credential.PluginConfig{}, credential.PluginOptions{BinDir: "/does/not/exist"})
	require.NoError(t, err)
	require.Equal(t, []credential.Provider{credential.Files{"/x"}}, providers)
	_, err = credential.NodeProviders(nil, credential.PluginConfig{Providers: make([]credential.PluginSpec, 1)}, credential.PluginOptions{BinDir: "/does/not/exist"})
	require.ErrorContains(t, err, "plugin configuration: ")
}
