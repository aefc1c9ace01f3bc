// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

// NodeProviders returns the credential providers that a kubelet uses on its node. The first provider reads files. The second
// one, if plugins are configured, runs the plugins. It returns an error if the plugin configuration is invalid, see
// [NewPlugins].
func NodeProviders(files Files, plugins PluginConfig, opts PluginOptions) ([]Provider, error) {
	providers := []Provider{files}
	if len(plugins.Providers) > 0 {
		p, err := NewPlugins(plugins, opts)
		if err != nil {
			return nil, err
		}
		providers = append(providers, p)
	}
	return providers, nil
}
