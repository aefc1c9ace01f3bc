// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

// ParsePlugin parses the configuration of a single plugin.
func ParsePlugin(data []byte) (*Network, error) { return parsePlugin(data) }

// Config returns the configuration of a network as JSON.
func (n *Network) Config() []byte { return n.configJSON() }
