// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

// NodeProviders returns the providers of a kubelet's node: the docker configurations files, and the plugins of plugins, with options o. Without
// plugins o is not used. An error is that of [NewPlugins].
func NodeProviders(files Files, plugins PluginConfig, o PluginOptions) ([]Provider, error) {
	providers := []Provider{files}
	if len(plugins.Providers) > 0 {
		p, err := NewPlugins(plugins, o)
		if err != nil {
			return nil, err
		}
		providers = append(providers, p)
	}
	return providers, nil
}
