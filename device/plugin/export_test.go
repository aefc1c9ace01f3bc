// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import "github.com/seed81659283/nodeagent/internal/pluginregistry"

// Handler returns the handler of the watcher of Options.Registry.
func (h *Host) Handler() pluginregistry.Handler { return registryHandler{h} }
