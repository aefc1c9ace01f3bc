// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package devicetest

// Sentences of the documentation of package device that the suite checks.
const (
	ruleOptions    = "Options: Options returns the optional calls that the plugin requests."
	ruleUpdate     = "Update: Update replaces the devices of the plugin."
	ruleClose      = "Close: Close reports that the plugin is no longer connected."
	rulePreferred  = "Preferred: Preferred returns the IDs of count devices that fit together best."
	ruleOpen       = "Preferred: open has the IDs from which the plugin may choose. chosen has the IDs that the result must include."
	ruleAllocate   = "Allocate: Allocate prepares devices for a container, and returns the additions to its config."
	ruleZero       = "Response: Its zero value adds nothing."
	rulePreStart   = "PreStart: PreStart is called before each start of a container that holds the devices"
	ruleErrors     = "Plugin: The errors are reported word by word."
	ruleContext    = "Plugin: Each call must return when ctx ends."
	ruleConcurrent = "Plugin: Calls are concurrent."
)
