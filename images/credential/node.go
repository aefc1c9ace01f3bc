// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

// NodeProviders returns the credential providers of a node like the kubelet: files, and the plugins configured by plugins with
// opts. Without plugins, opts is not used. It returns an error of [NewPlugins].
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
