// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi

// SetMaxList makes the pages of a client's lists smaller than [MaxList].
func (c *Client) SetMaxList(bytes int64) { c.maxList = bytes }
