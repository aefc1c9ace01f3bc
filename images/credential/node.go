// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

// NodeProviders returns the credential providers of a kubelet: the first reads files, and the second runs the plugins, if
// plugins are configured. An invalid plugin configuration is an error; see [NewPlugins].
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
