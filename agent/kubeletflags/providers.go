// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletflags

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"sigs.k8s.io/yaml"

	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/internal/safeyaml"
)

// Bounds of the configuration of credential providers.
const (
	maxProviderFileSize = 1 << 20 // bytes
	maxProviderFiles    = 256     // in a directory
)

// readProviders reads a CredentialProviderConfig: a file, or the files of a directory with the suffix .json, .yaml or .yml, in lexical order. An
// empty path means none. Source: pkg/credentialprovider/plugin/config.go.
func readProviders(path string) (merged credential.PluginConfig, err error) {
	if path == "" {
		return merged, nil
	}
	files, err := providerFiles(path)
	if err != nil {
		return merged, err
	}
	for _, file := range files {
		config, err := readProviderFile(file)
		if err != nil {
			return merged, fmt.Errorf("%s: %w", file, err)
		}
		merged.Providers = append(merged.Providers, config.Providers...)
	}
	return merged, merged.Validate() // two files may have one provider
}

// providerFiles returns the configuration files at path.
func providerFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var files []string
	for {
		entries, err := dir.ReadDir(maxProviderFiles)
		for _, entry := range entries {
			suffix := filepath.Ext(entry.Name())
			if !entry.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml"}, suffix) {
				files = append(files, filepath.Join(path, entry.Name()))
			}
		}
		switch {
		case len(files) > maxProviderFiles:
			return nil, fmt.Errorf("there are more than %d configuration files", maxProviderFiles)
		case errors.Is(err, io.EOF) && len(files) == 0:
			return nil, errors.New("there is no configuration file in the directory")
		case errors.Is(err, io.EOF):
			slices.Sort(files)
			return files, nil
		case err != nil:
			return nil, err
		}
	}
}

// readProviderFile reads one regular file. Links are followed, as in the kubelet: only the administrator writes here.
func readProviderFile(path string) (credential.PluginConfig, error) {
	var config credential.PluginConfig
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a FIFO would wait for its writer
	if err != nil {
		return config, errors.Unwrap(err) // without the path, which the caller adds
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return config, err
	}
	if !info.Mode().IsRegular() {
		return config, errors.New("is no regular file")
	}
	data, err := io.ReadAll(io.LimitReader(file, maxProviderFileSize+1))
	if err != nil {
		return config, err
	}
	if len(data) > maxProviderFileSize {
		return config, fmt.Errorf("must not be larger than %d bytes", maxProviderFileSize)
	}
	if _, err := safeyaml.NewBudget(len(data)).YAML(data); err != nil { // aliases expand
		return config, err
	}
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return config, err
	}
	return credential.ParsePluginConfig(text)
}
